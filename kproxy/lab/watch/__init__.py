"""What really passes in a lab: frames captured at every interface, told apart by flow, compared with the model."""
