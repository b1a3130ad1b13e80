package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/node/live"
)

// localNode is one node in this process.
type localNode struct {
	address string
	node    *live.Node
	folder  *osdisk.FS
}

// startNode starts a node on a free port, with its data below dir.
func startNode(ctx context.Context, dir string) (*localNode, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	fs, err := osdisk.Open(dir)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	n, err := live.Start(live.Config{
		ID: "n1", Peers: []model.Node{{ID: "n1", Address: l.Addr().String()}}, FS: fs,
		Journal: journal.New(filepath.Join(dir, "journal")), Listener: l, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		_ = fs.Close()
		return nil, err
	}
	out := &localNode{address: l.Addr().String(), node: n, folder: fs}
	if err := n.WaitReady(ctx); err != nil {
		out.stop()
		return nil, err
	}
	return out, nil
}

func (n *localNode) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = n.node.Stop(ctx)
	_ = n.folder.Close()
}
