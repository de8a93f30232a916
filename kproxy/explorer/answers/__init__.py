"""What is answered of one state: the map, questions, rules of a hop, a Service; and what only a lab does."""
