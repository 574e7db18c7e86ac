"""What can be known of a playbook before it is run."""
