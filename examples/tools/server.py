"""The same tool behind the Model Context Protocol. It needs pip install "motet[mcp]"."""

from calculator import add
from mcp.server import MCPServer

server = MCPServer("calculator")
server.tool()(add)
server.run("stdio")
