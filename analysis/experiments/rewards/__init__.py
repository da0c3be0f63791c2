"""Effects of imperfect rewards, critics, turns and roles on learning."""
