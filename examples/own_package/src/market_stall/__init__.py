"""A game for two agents: a buyer offers a price, and a seller takes it or not."""
