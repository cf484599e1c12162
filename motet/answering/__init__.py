"""Ask a trained team: one question at a time, in the terminal or over HTTP.

unscored.py  an environment's game without the last reward, which no person's question has
team.py      a question through the team's own protocol, or a chat with one of its agents
sharing.py   joins the requests of many questions into batches of one sampler
protocol.py  requests and responses of OpenAI's chat API
stream.py    answers as server-sent events
app.py       the web application
terminal.py  a conversation in the terminal
"""
