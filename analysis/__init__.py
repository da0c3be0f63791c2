"""Tables in, numbers out. Loads without torch and without matplotlib."""
