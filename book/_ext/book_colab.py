"""Offer the published repository on each page, and Colab on each notebook.

`make publish` writes the repository into `_config.yml`. Without one the pages offer nothing:
no button may lead nowhere.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

COLAB = "https://colab.research.google.com"
BADGE = (
    '<p><a class="colab-badge" href="{url}">'
    '<span lang="zh">在 Colab 中打开</span> <span lang="en">Open in Colab</span></a></p>'
)
# The theme's sign of GitHub stands in a font of brands, which the book does not carry.
REPOSITORY_ICON = "fas fa-code-branch"


def offer_repository(app: Sphinx, config: Config) -> None:
    """Switch the theme's buttons on where there is a repository for them."""
    options = config.html_theme_options
    if options.get("repository_url"):
        options["use_repository_button"] = True
        options["use_issues_button"] = True
        options["launch_buttons"] = {"colab_url": COLAB}


def adapt_buttons(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Show the theme's link to Colab below the title too, where a reader looks first."""
    for group in context.get("header_buttons", []):
        for button in (group, *group.get("buttons", [])):
            if button.get("icon", "").startswith("fab "):
                button["icon"] = REPOSITORY_ICON
            if button.get("url", "").startswith(COLAB):
                badge = BADGE.format(url=button["url"])
                context["body"] = context["body"].replace("</h1>", "</h1>" + badge, 1)


def setup(app: Sphinx) -> dict[str, object]:
    """Run after the theme has made its buttons."""
    app.connect("config-inited", offer_repository)
    app.connect("html-page-context", adapt_buttons, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
