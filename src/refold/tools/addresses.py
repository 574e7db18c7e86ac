"""Which addresses of the network are public; a request from a playbook reaches no other unless that is allowed."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# Written out, because what `ipaddress` calls private differs from one Python to the next.
NOT_PUBLIC = [
    ip_network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # the metadata of a cloud
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),  # among them tunnels, which lead anywhere
    )
]
PUBLIC_IPV6 = ip_network("2000::/3")
STANDS_FOR_IPV4 = [ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96")]  # by its last 32 bits


def is_public(text: str) -> bool:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if any(address in network for network in STANDS_FOR_IPV4):
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    if isinstance(address, IPv6Address) and address not in PUBLIC_IPV6:
        return False
    return not any(address in network for network in NOT_PUBLIC)
