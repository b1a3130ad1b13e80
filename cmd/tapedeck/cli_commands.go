package main

// clientCommands are the commands that speak to a running cluster.
type clientCommands struct{}
