"""Terms: losses without a reward, added with a coefficient to another objective or used alone.

They are costs: a positive coefficient shrinks a divergence or raises the entropy. A sampled estimate has
several gradients, and every term states its choice: "pathwise" differentiates the estimator with the sample
held fixed, "score" multiplies its detached value with log pi, "both" adds the two and is the gradient of the
estimator's expectation over samples of pi.
"""
