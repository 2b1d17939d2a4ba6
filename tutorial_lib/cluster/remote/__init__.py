"""Ranks on other hosts: started over ssh, linked to the supervisor, ended when the link is cut."""
