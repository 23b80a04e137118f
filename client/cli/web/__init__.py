"""`tensord web`: a page that shows a daemon at work, or a trace.

- `web`: the command
- `serving`: the event loop: a socket, a poller, the open pages; `connection_limit`: limits the number of connections
- `answers`: the answers to requests; `access`: checks tokens and origins
- `viewers`: the open pages, each of which gets the newest view
- `watched`: a daemon that is watched, `pace`: the rate of questions; `window`: the records that are kept
- `opened`: a trace that is shown
- `files`: the page's own files; `source`: the common interface of a daemon and a trace
"""
