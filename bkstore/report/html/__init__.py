"""What the page is written with: escaped markup, words for numbers, bars, style and script."""

__all__ = ["bars", "markup", "script", "style", "wording"]
