"""Report pages as a browser takes them apart."""

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """What a browser makes of a page: its elements, its text, the content of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.styles, self.words = [], {}, [], []
        self.within = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.within = tag

    def handle_endtag(self, tag):
        self.within = ""

    def handle_data(self, data):
        if self.within == "script":
            name = self.tags[-1][1].get("id", "")
            self.scripts[name] = self.scripts.get(name, "") + data
        else:
            (self.styles if self.within == "style" else self.words).append(data)
