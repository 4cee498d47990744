"""Checks of sizes that a user gives or a data set brings."""


def at_least_one(key: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"model.{key} must be an integer >= 1, got {value}")
    return value


def image_shape(model: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of an input that must be an image."""
    if len(input_shape) != 3:
        raise ValueError(f"model={model} needs images (channels, height, width), the data set has {input_shape}")
    return input_shape[0], input_shape[1], input_shape[2]
