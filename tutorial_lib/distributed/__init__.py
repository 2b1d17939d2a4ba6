"""Between ranks: who am I, who else is there, and how we talk."""
