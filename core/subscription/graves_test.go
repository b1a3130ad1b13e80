package subscription

import (
	"strconv"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// graves are a dead-letter topic's partitions, which tell copies by producer
// and sequence.
type graves struct {
	epochs map[string]model.Epoch
	stored map[sequenceOf]grave
}

// grave is where a letter came from.
type grave struct {
	partition model.Partition
	offset    model.Offset
}

func newGraves() graves {
	return graves{epochs: map[string]model.Epoch{}, stored: map[sequenceOf]grave{}}
}

// has says whether a letter of a source partition is stored; its producer has
// the number of the partition.
func (g *graves) has(to model.GroupID, source model.Partition, sequence model.Sequence) bool {
	for k := range g.stored {
		if k.group == to && k.producer == model.ProducerID(source)+1 && k.sequence == sequence {
			return true
		}
	}
	return false
}

// check: a message has one copy at most per seek.
func (g *graves) check(w *world) {
	copies := map[grave]int{}
	for _, at := range g.stored {
		copies[at]++
	}
	for at, n := range copies {
		if n > 1+w.seeks[at.partition] {
			w.rt.Fatalf("%+v has %d copies after %d seeks", at, n, w.seeks[at.partition])
		}
	}
}

// answerOne answers some ask, or fails it, before or after it took effect.
func (w *world) answerOne() {
	if len(w.Asks) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.Asks)-1).Draw(w.rt, "which ask")
	a := w.Asks[i]
	w.Asks = append(w.Asks[:i:i], w.Asks[i+1:]...)
	fate := rapid.IntRange(0, 5).Draw(w.rt, "fate")
	lost := model.Errorf(model.Unavailable, "no answer")
	if fate == 0 && !w.healing {
		w.machine().AskDone(w.Host, a.ID, nil, lost)
		return
	}
	resp, err := w.graves.serve(w, a.Group, a.Req)
	if fate == 1 && !w.healing {
		resp, err = nil, lost
	}
	w.machine().AskDone(w.Host, a.ID, resp, err)
	w.observe()
}

func (g *graves) serve(w *world, to model.GroupID, req call.Request) (call.Response, *model.Error) {
	switch req := req.(type) {
	case *call.OpenProducer:
		g.epochs[req.Name]++
		p, err := strconv.Atoi(req.Name[len("dead-letters.1."):])
		if err != nil {
			w.rt.Fatal(err)
		}
		return &call.ProducerOpened{ID: model.ProducerID(p) + 1, Epoch: g.epochs[req.Name]}, nil
	case *call.Read:
		v := batch.Encode([]batch.Message{{Key: strconv.AppendUint(nil, uint64(req.Offset), 10)}}, batch.Options{})
		v.Stamp(req.Offset, 1)
		return &call.ReadResult{Run: v, Next: v.Next()}, nil
	case *call.Append:
		return g.store(w, to, batch.View(req.Batch))
	}
	w.rt.Fatalf("asked for %T", req)
	return nil, nil
}

func (g *graves) store(w *world, to model.GroupID, v batch.View) (call.Response, *model.Error) {
	v.Stamp(99, 9)
	ms, err := v.Messages(nil)
	if err != nil {
		w.rt.Fatal(err)
	}
	var at grave
	for _, a := range ms[0].Attributes {
		n, _ := strconv.ParseUint(a.Value, 10, 64)
		switch a.Name {
		case AttributePartition:
			at.partition = model.Partition(n)
		case AttributeOffset:
			at.offset = model.Offset(n)
		}
	}
	key := sequenceOf{to, v.Producer(), v.Epoch(), v.Sequence()}
	if before, ok := g.stored[key]; ok {
		if before != at {
			w.rt.Fatalf("sequence %+v is used for %+v and %+v", key, before, at)
		}
		return &call.Appended{Duplicate: true}, nil
	}
	if key.sequence > 0 {
		if _, ok := g.stored[sequenceOf{to, key.producer, key.epoch, key.sequence - 1}]; !ok {
			w.rt.Fatalf("sequence %+v leaves a gap", key)
		}
	}
	g.stored[key] = at
	return &call.Appended{}, nil
}
