"""A server of the second major of the SDK; it is started late, by whoever runs it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("slow")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


server.run()
