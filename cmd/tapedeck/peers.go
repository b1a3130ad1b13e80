package main

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tapedeck/tapedeck/core/model"
)

// peerList is every node of a cluster, by name; in text n1=HOST:PORT,n2=HOST:PORT.
type peerList []model.Node

// Decode implements kong.MapperValue. It may be called once for each of several flags.
func (l *peerList) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("peers", &text); err != nil {
		return err
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := l.add(strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	slices.SortFunc(*l, func(a, b model.Node) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

func (l *peerList) add(part string) error {
	name, address, ok := strings.Cut(part, "=")
	if !ok {
		return fmt.Errorf("%q: write NAME=HOST:PORT", part)
	}
	if err := model.ValidateName(name, name); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || port == "0" {
		return fmt.Errorf("%q: write NAME=HOST:PORT, with what the other nodes reach it at", part)
	}
	for _, p := range *l {
		switch {
		case string(p.ID) == name && p.Address == address:
			return fmt.Errorf("%s is named twice", name)
		case string(p.ID) == name:
			return fmt.Errorf("%s is named twice, with %s and %s", name, p.Address, address)
		case p.Address == address:
			return fmt.Errorf("%s and %s have the same address, %s", p.ID, name, address)
		}
	}
	*l = append(*l, model.Node{ID: model.NodeID(name), Address: address})
	return nil
}

// find is the node itself, which must be among its peers.
func (l peerList) find(id string) (model.Node, error) {
	names := make([]string, len(l))
	for i, p := range l {
		if string(p.ID) == id {
			return p, nil
		}
		names[i] = string(p.ID)
	}
	return model.Node{}, fmt.Errorf("--peers names %s, and not --id %s: name every node of the cluster, this one too",
		strings.Join(names, ", "), id)
}

// elsewhere says in which way a node would not be reached at the address that its
// peers know, as far as that shows in the text; empty: nothing speaks against it.
func elsewhere(listen, peers string) string {
	atHost, atPort, err := net.SplitHostPort(listen)
	if err != nil {
		return "" // listening says so
	}
	host, port, err := net.SplitHostPort(peers)
	if err != nil {
		return ""
	}
	at, known := net.ParseIP(atHost), net.ParseIP(host)
	inward := atHost == "localhost" || at.IsLoopback()
	switch {
	case atPort != port && atPort != "0":
	case at != nil && known != nil && !at.IsUnspecified() && !at.Equal(known):
	case inward && known == nil && host != "localhost":
	default:
		return ""
	}
	return fmt.Sprintf("--listen is %s, but --peers tells the other nodes %s: unless something forwards the one to the "+
		"other, they do not reach this node", listen, peers)
}
