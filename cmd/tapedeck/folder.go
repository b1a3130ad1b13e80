package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/node"
)

// asideFlags are those of node rebuild for a node that is not running.
type asideFlags struct {
	Data string `help:"Data folder of a node that does not start: its content is set aside." placeholder:"DIR"`
	Yes  bool   `help:"Do not ask."`
}

// setAside moves everything into DIR/refused-N. Nothing is deleted.
func (c *asideFlags) setAside(ctx context.Context, std *stdio) error {
	if err := notSetAside(c.Data); err != nil {
		return err
	}
	fs, err := openFolder(c.Data)
	if err != nil {
		return err
	}
	defer fs.Close()
	if !c.Yes {
		fmt.Fprintf(std.Out, "The content of %s moves to a folder in it, and this node's replicas are made anew from\n"+
			"its peers. Do this on one node at a time, while the others are up: what only this folder\n"+
			"holds is not served any more. Type yes to go on: ", c.Data)
		err := interruptible(ctx, func() error {
			line, _ := bufio.NewReader(std.In).ReadString('\n') // an end of input is a no
			if strings.TrimSpace(line) != "yes" {
				return errors.New("answer yes, or give --yes")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	to, err := node.SetAside(fs)
	switch {
	case err != nil:
		return fmt.Errorf("%w; run the command again, it takes what is left", err)
	case to == "":
		fmt.Fprintln(std.Out, "The folder is empty already: start the node.")
	default:
		fmt.Fprintf(std.Out, "All of it is in %s/%s now. Start the node: it rejoins by itself.\n"+
			"Remove that folder once the node has caught up.\n", c.Data, to)
	}
	return nil
}

// openFolder locks a folder that must be there.
func openFolder(dir string) (*osdisk.FS, error) {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("--data: %s is no folder", dir)
	}
	switch kind, foreign, err := folderKind(dir); {
	case err != nil:
		return nil, err
	case kind == node.ForeignFolder:
		return nil, noNodes(dir, foreign)
	case kind == node.EmptyFolder && !osdisk.HasLock(dir):
		return nil, fmt.Errorf("--data: %s is no node's folder: it is empty", dir)
	}
	return osdisk.Open(dir)
}

// fitForNode refuses a folder in which no node should begin to write.
func fitForNode(dir string) error {
	if err := notSetAside(dir); err != nil {
		return err
	}
	kind, foreign, err := folderKind(dir)
	if err == nil && kind == node.ForeignFolder {
		err = fmt.Errorf("%w; give the node an empty folder, or a new one, which is made", noNodes(dir, foreign))
	}
	return err
}

// noNodes says that a folder is somebody else's.
func noNodes(dir, foreign string) error {
	if err := notOfSeveral(dir); err != nil {
		return err
	}
	return fmt.Errorf("--data: %s is no node's folder: it holds %s and nothing of a node", dir, foreign)
}

// folderKind looks into a folder, which may be missing.
func folderKind(dir string) (node.FolderKind, string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, "", fmt.Errorf("--data: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != osdisk.LockFile {
			names = append(names, e.Name())
		}
	}
	kind, foreign := node.KindOf(names)
	return kind, foreign, nil
}

// notOfSeveral refuses a folder that is not a node's, but holds those of several.
func notOfSeveral(dir string) error {
	nodes := nodeFolders(dir)
	if len(nodes) == 0 {
		return nil
	}
	return fmt.Errorf("--data: %s is no node's folder, but holds those of %s; name one of them, such as %s",
		dir, strings.Join(nodes, ", "), filepath.Join(dir, nodes[0]))
}

// notSetAside refuses a folder that a rebuild made: what is in it is not a node's
// any more, whatever it looks like.
func notSetAside(dir string) error {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if there, err := filepath.EvalSymlinks(whole); err == nil {
		whole = there
	}
	of := filepath.Dir(whole)
	if !node.IsAside(filepath.Base(whole)) || !isNodeFolder(of) && !osdisk.HasLock(of) {
		return nil
	}
	return fmt.Errorf("--data: %s holds what was set aside from %s and is served no more: start the node with --data %s; "+
		"remove %s once the node has caught up", dir, of, of, dir)
}

// nodeFolders are the folders of nodes inside a folder that is none itself, as dev
// makes them, by name; what was set aside is none.
func nodeFolders(dir string) []string {
	if isNodeFolder(dir) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // whoever opens it says so
	}
	var nodes []string
	for _, e := range entries {
		if e.IsDir() && !node.IsAside(e.Name()) && isNodeFolder(filepath.Join(dir, e.Name())) {
			nodes = append(nodes, e.Name())
		}
	}
	return nodes
}

func isNodeFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, node.IdentityFile))
	return err == nil
}

// explainRefused says of a refused data folder what a person can do.
func explainRefused(err error, dir string) error {
	var r *record.Refused
	if !errors.As(err, &r) {
		return err
	}
	return fmt.Errorf("the data folder is refused, so this node does not start\n"+
		"  file:     %s/%s\n  position: byte %d\n  cause:    %s\n  what now: %s:\n"+
		"            tapedeck node rebuild --data %s",
		dir, r.File, r.Position, r.Cause, r.Advice, dir)
}

// verifyCmd checks a data folder offline.
type verifyCmd struct {
	Data string `help:"The stopped node's data folder." required:"" placeholder:"DIR"`
}

// Run prints what is wrong, each with file and position; then it fails.
func (c *verifyCmd) Run(_ context.Context, std *stdio) error {
	fs, err := openFolder(c.Data)
	if err != nil {
		return err
	}
	defer fs.Close()
	r, err := node.Verify(fs, journal.New(filepath.Join(c.Data, "journal")))
	if err != nil {
		return fmt.Errorf("check %s: %w", c.Data, err)
	}
	if r.Disk == 0 && len(r.Findings) == 0 {
		fmt.Fprintln(std.Out, "The folder is empty.")
		return nil
	}
	fmt.Fprintf(std.Out, "disk %x, start %d; %s; %s in the segments of %s\n", r.Disk, r.Starts,
		count(r.Records, "journal record"), count(r.Batches, "batch"), count(r.Groups, "partition"))
	if r.Torn != nil {
		fmt.Fprintf(std.Out, "the journal ends in a write that was cut short, at byte %d of journal/%s: nobody was told "+
			"that it was done, and the next start cuts it\n", r.Torn.Position, r.Torn.File)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(std.Out, "DAMAGED %s at byte %d: %s\n", f.File, f.Position, f.Cause)
	}
	if n := len(r.Findings); n > 0 {
		if !r.Readable {
			fmt.Fprintln(std.Out, "The segments were not checked: what is damaged says what they have to hold.")
		}
		return fmt.Errorf("%s found that should not be; a start refuses the folder, or repairs single batches from other "+
			"replicas; to have all of it made anew: tapedeck node rebuild --data %s", count(n, "thing"), c.Data)
	}
	fmt.Fprintln(std.Out, "Nothing is wrong.")
	return nil
}
