"""Networks."""

from cmr_runner.models.cnn import CNN
from cmr_runner.models.gpt import GPT
from cmr_runner.models.mlp import MLP
from cmr_runner.models.resnet import ResNet
from cmr_runner.models.vit import ViT

__all__ = ["CNN", "GPT", "MLP", "ResNet", "ViT"]
