"""What imperfect rewards, critics, turns and roles do to learning."""
