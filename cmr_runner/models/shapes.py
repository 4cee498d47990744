"""Checks of sizes that a user gives or a data set brings."""

from cmr_runner.checks import integer

# Beyond these a network is a slip of the keyboard, and building it would end the process, not in an error.
WIDEST = 2**16
DEEPEST = 2**12


def width_of(argument: str, value: int) -> int:
    return integer(argument, value, least=1, most=WIDEST)


def depth_of(argument: str, value: int) -> int:
    return integer(argument, value, least=1, most=DEEPEST)


def image_shape(input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of an input that must be an image."""
    if len(input_shape) != 3:
        raise ValueError(f"it needs images (channels, height, width), the data set has {input_shape}")
    return input_shape[0], input_shape[1], input_shape[2]
