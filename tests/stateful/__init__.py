"""Every store beside the model, step by step, through lives nobody wrote down."""
