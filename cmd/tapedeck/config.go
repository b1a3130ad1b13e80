package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// yamlResolver reads flags from a YAML file: a map of flag names to values; a
// map under a command's name holds values for that command alone and wins over
// the same name outside. A name that no flag has is an error.
func yamlResolver(r io.Reader) (kong.Resolver, error) {
	values := map[string]any{}
	if err := yaml.NewDecoder(r).Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return &yamlValues{values}, nil
}

type yamlValues struct{ values map[string]any }

// Validate implements kong.Resolver.
func (y *yamlValues) Validate(app *kong.Application) error {
	return checkNames(app.Node, y.values, "")
}

// checkNames holds the names in values to the flags and commands of a node, and
// at the top level to the flags of any command.
func checkNames(n *kong.Node, values map[string]any, where string) error {
	flags, commands := map[string]bool{}, map[string]*kong.Node{}
	for _, f := range n.Flags {
		flags[f.Name] = true
	}
	for _, c := range n.Children {
		commands[c.Name] = c
	}
	if where == "" {
		collectFlags(n, flags)
	}
	for name, v := range values {
		if sub, ok := v.(map[string]any); ok && commands[name] != nil {
			if err := checkNames(commands[name], sub, where+name+"."); err != nil {
				return err
			}
			continue
		}
		if !flags[name] {
			return fmt.Errorf("configuration has %q, but there is no such flag or command", where+name)
		}
	}
	return nil
}

func collectFlags(n *kong.Node, into map[string]bool) {
	for _, f := range n.Flags {
		into[f.Name] = true
	}
	for _, c := range n.Children {
		collectFlags(c, into)
	}
}

// Resolve implements kong.Resolver.
func (y *yamlValues) Resolve(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	// Kong asks after it has read the environment, which wins over the file.
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	v, ok := y.values[flag.Name]
	if parent != nil && parent.Command != nil {
		if sub, isMap := y.values[parent.Command.Name].(map[string]any); isMap {
			if inner, there := sub[flag.Name]; there {
				v, ok = inner, true
			}
		}
	}
	if !ok || v == nil {
		return nil, nil
	}
	return flatten(v), nil
}

// flatten writes lists and maps the way flags take them.
func flatten(v any) any {
	switch v := v.(type) {
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		return strings.Join(parts, ",")
	case map[string]any:
		parts := make([]string, 0, len(v))
		for name, value := range v {
			parts = append(parts, fmt.Sprintf("%s=%v", name, value))
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(v)
	}
}
