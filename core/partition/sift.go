package partition

import (
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// sift takes out of a read's answer what its filter does not want. Batches stay
// whole, as they are signed; those without a wanted message go. What cannot be
// taken apart is wanted: nothing is left out by mistake, and the reader will say
// what is wrong with it.
func (m *Machine) sift(r *reader, res *call.ReadResult) *call.ReadResult {
	if r.filter == nil {
		return res
	}
	views, err := batch.Split(res.Run)
	if err != nil {
		return res
	}
	kept := make([]byte, 0, len(res.Run))
	for _, v := range views {
		messages, err := v.Messages(m.cfg.Unpack)
		if err != nil {
			kept = append(kept, v...)
			continue
		}
		wanted := false
		for i := range messages {
			o := v.Base() + model.Offset(i)
			switch {
			case o < r.offset:
			case r.filter.Match(messages[i].Attributes):
				wanted = true
			default:
				res.Filtered = leaveOut(res.Filtered, o)
			}
		}
		if wanted {
			kept = append(kept, v...)
		}
	}
	if len(kept) < len(res.Run) {
		res.Run = kept
	}
	return res
}

// leaveOut adds an offset above all that are there.
func leaveOut(to []call.Range, o model.Offset) []call.Range {
	if n := len(to); n > 0 && to[n-1].To == o {
		to[n-1].To++
		return to
	}
	return append(to, call.Range{From: o, To: o + 1})
}
