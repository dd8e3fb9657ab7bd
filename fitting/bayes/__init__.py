"""Partial pooling by Bayes' rule: priors, posterior, prediction, draws, the next measurement."""
