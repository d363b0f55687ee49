"""The one source of truth for what this project installs on the platform: strict models of its resources, and `build`.

`build(profile)` gives a `ResourceSet`; whatever renders files from it or writes it to an installation adds nothing of its own.
"""

from deployment_templates.resources.build import build, system_prompt
from deployment_templates.resources.configuration import AppConfigurationEntry
from deployment_templates.resources.members import (
    CacheReset,
    Member,
    NeededSecret,
    PlatformResource,
    ResourceSet,
    Restart,
    RoleMember,
    ServiceReady,
)

__all__ = [
    "AppConfigurationEntry",
    "CacheReset",
    "Member",
    "NeededSecret",
    "PlatformResource",
    "ResourceSet",
    "Restart",
    "RoleMember",
    "ServiceReady",
    "build",
    "system_prompt",
]
