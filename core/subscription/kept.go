package subscription

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// maxKept bounds the snapshots of cursors of one subscription.
const maxKept = 32

// kept is where the cursors were at one moment, by partition. What was acked
// ahead of them is not part of it: it comes again.
type kept struct {
	name    string
	created model.Wall
	cursors []model.Offset
}

// keepCommand keeps the cursors as they are when it is applied.
type keepCommand struct {
	id      model.SubscriptionID
	name    string
	created model.Wall
	limit   uint32 // snapshots of a subscription at most
}

// forgetCommand drops a snapshot.
type forgetCommand struct {
	id   model.SubscriptionID
	name string
}

// restoreCommand moves cursors to where a snapshot has them. Partitions that were
// not there then go to their start.
type restoreCommand struct {
	id   model.SubscriptionID
	name string
	only []model.Partition // empty: all
}

func (*keepCommand) kind() kind    { return kindKeep }
func (*forgetCommand) kind() kind  { return kindForget }
func (*restoreCommand) kind() kind { return kindRestore }

// Code implements wire.Coder.
func (v *keepCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.String(c, &v.name)
	wire.Int(c, &v.created)
	wire.Uint(c, &v.limit)
}

// Code implements wire.Coder.
func (v *forgetCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.String(c, &v.name)
}

// Code implements wire.Coder.
func (v *restoreCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.String(c, &v.name)
	wire.Slice(c, &v.only, func(c *wire.Codec, p *model.Partition) { wire.Uint(c, p) })
}

func codeKept(c *wire.Codec, k *kept) {
	wire.String(c, &k.name)
	wire.Int(c, &k.created)
	wire.Slice(c, &k.cursors, func(c *wire.Codec, o *model.Offset) { wire.Uint(c, o) })
}

// checkKept says which invariant what is kept breaks.
func (s *subscription) checkKept() error {
	for i := range s.kept {
		if i > 0 && s.kept[i-1].name >= s.kept[i].name {
			return fmt.Errorf("snapshot %q follows %q", s.kept[i].name, s.kept[i-1].name)
		}
		if len(s.kept[i].cursors) > len(s.partitions) {
			return fmt.Errorf("snapshot %q has %d partitions of %d", s.kept[i].name, len(s.kept[i].cursors), len(s.partitions))
		}
	}
	return nil
}

func (s *subscription) keptAt(name string) (int, bool) {
	return slices.BinarySearchFunc(s.kept, name, func(k kept, name string) int { return strings.Compare(k.name, name) })
}

// noSnapshot names those there are: there are few.
func (s *subscription) noSnapshot(name string) *model.Error {
	names := make([]string, 0, len(s.kept))
	for i := range s.kept {
		names = append(names, s.kept[i].name)
	}
	if len(names) == 0 {
		return model.Errorf(model.NotFound, "%s has no snapshot %q, nor any other", s.ref, name)
	}
	return model.Errorf(model.NotFound, "%s has no snapshot %q; there are %s", s.ref, name, strings.Join(names, ", "))
}

func (v *keepCommand) apply(s *state) outcome {
	sub := s.subscriptions[v.id]
	if sub == nil {
		return outcome{err: gone(v.id)}
	}
	i, there := sub.keptAt(v.name)
	switch {
	case there:
		return outcome{err: model.Errorf(model.AlreadyExists,
			"%s has a snapshot %q already; delete it first, or take another name", sub.ref, v.name)}
	case len(sub.kept) >= int(v.limit):
		return outcome{err: model.Errorf(model.ResourceExhausted,
			"%s has %d snapshots, its limit; delete one first", sub.ref, len(sub.kept))}
	}
	k := kept{name: v.name, created: v.created}
	for p := range sub.partitions {
		k.cursors = append(k.cursors, sub.partitions[p].cursor)
	}
	sub.kept = slices.Insert(sub.kept, i, k)
	return outcome{kept: sub.kept[i].shown()}
}

// keptOf finds a snapshot by its subscription and name.
func (s *state) keptOf(id model.SubscriptionID, name string) (*subscription, int, *model.Error) {
	sub := s.subscriptions[id]
	if sub == nil {
		return nil, 0, gone(id)
	}
	i, there := sub.keptAt(name)
	if !there {
		return nil, 0, sub.noSnapshot(name)
	}
	return sub, i, nil
}

func (v *forgetCommand) apply(s *state) outcome {
	sub, i, err := s.keptOf(v.id, v.name)
	if err != nil {
		return outcome{err: err}
	}
	out := outcome{kept: sub.kept[i].shown()}
	sub.kept = slices.Delete(sub.kept, i, i+1)
	return out
}

func (v *restoreCommand) apply(s *state) outcome {
	sub, i, err := s.keptOf(v.id, v.name)
	if err != nil {
		return outcome{err: err}
	}
	seek := &seekCommand{id: v.id}
	for p := range sub.partitions {
		if len(v.only) > 0 && !slices.Contains(v.only, model.Partition(p)) {
			continue
		}
		to := place{partition: model.Partition(p)}
		if p < len(sub.kept[i].cursors) {
			to.offset = sub.kept[i].cursors[p]
		}
		seek.to = append(seek.to, to)
	}
	out := seek.apply(s)
	out.moved = seek.to
	return out
}

func (k *kept) shown() call.CursorSnapshot {
	out := call.CursorSnapshot{Name: k.name, Created: k.created}
	for p, o := range k.cursors {
		out.Cursors = append(out.Cursors, call.PartitionOffset{Partition: model.Partition(p), Offset: o})
	}
	return out
}

func (m *Machine) serveKeep(h group.Host, w *wait, st *subscription, req *call.KeepCursors) {
	if err := model.ValidateName("name", req.Name); err != nil {
		m.finish(h, w, nil, err)
		return
	}
	var c command = &keepCommand{id: st.id, name: req.Name, created: h.Wall(), limit: maxKept}
	if req.Forget {
		c = &forgetCommand{id: st.id, name: req.Name}
	}
	m.hold(w)
	m.proposeFor(h, c, w)
}

func (m *Machine) keepApplied(h group.Host, p *proposal, out outcome) {
	for _, w := range p.waits {
		m.finish(h, w, &call.KeptCursors{Snapshots: []call.CursorSnapshot{out.kept}}, out.err)
	}
}

func (m *Machine) finishList(h group.Host, w *wait, st *subscription) {
	resp := &call.KeptCursors{}
	for i := range st.kept {
		resp.Snapshots = append(resp.Snapshots, st.kept[i].shown())
	}
	m.finish(h, w, resp, nil)
}

func (m *Machine) serveRestore(h group.Host, w *wait, st *subscription, req *call.MoveCursors) {
	for _, p := range req.Only {
		if err := st.inRange(p); err != nil {
			m.finish(h, w, nil, err)
			return
		}
	}
	m.hold(w)
	m.proposeFor(h, &restoreCommand{id: st.id, name: req.Snapshot, only: req.Only}, w)
}
