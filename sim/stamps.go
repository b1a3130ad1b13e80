package sim

import "github.com/tapedeck/tapedeck/core/model"

// someTime is, half of the time, the append time of some message of a topic that
// a reader got lately: a moment at which edges lie. 0: take another.
func (r *recorder) someTime(topic string, s *stream) model.Wall {
	back, which := s.IntN(200), s.IntN(1<<20)
	if s.IntN(2) == 0 {
		return 0
	}
	ops := r.history.Ops
	for i := len(ops) - 1 - back; i >= 0; i-- {
		if f := ops[i].Fetch; f != nil && f.Topic == topic && len(f.Messages) > 0 {
			return f.Messages[which%len(f.Messages)].AppendTime
		}
		if p := ops[i].Pull; p != nil && len(p.Messages) > 0 {
			return p.Messages[which%len(p.Messages)].AppendTime
		}
	}
	return 0
}
