"""`tensord web`: a page that shows a daemon at work, or a trace.

- `web`: the command
- `serving`: the event loop: a socket, a poller, the pages that look; `doors`: how many connections there may be
- `answers`: what is answered to requests; `access`: who may ask
- `seats`: the pages that look, each of which gets the newest view
- `watched`: a daemon that is watched, `pace`: how often; `window`: the records that are kept
- `opened`: a trace that is shown
- `files`: the page's own files; `source`: what a daemon and a trace have in common here
"""
