"""The container builder: podman or docker, an image from a Containerfile, no network."""

from labctl.build.container.builder import ContainerBuilder

__all__ = ["ContainerBuilder"]
