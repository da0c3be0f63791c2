"""Exact values, gradients, biases and variances by enumeration, recursion and linear algebra."""
