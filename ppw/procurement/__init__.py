"""The procurement answer: which servers to buy for a demand, what they cost, and how surely."""
