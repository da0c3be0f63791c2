"""What passes between the parts of a step: rollouts, advantage inputs, batches, and how groups are chosen."""
