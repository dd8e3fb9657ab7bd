"""The sweep of `ppw measure`: one run a setting, on this host or by ssh."""
