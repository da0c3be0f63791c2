"""Terms: losses without a reward, added with a coefficient to another objective or used alone.

Their sign is that of a cost: a positive coefficient shrinks a divergence or raises the entropy. Which
gradient a sampled estimate has is a choice of its own, and every term states it: "pathwise" differentiates
the estimator with the sample held fixed, "score" multiplies its constant value with log pi, "both" adds the
two and is the gradient of the estimator's expectation over samples of pi.
"""
