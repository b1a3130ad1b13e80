package gateway

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// snapshot keeps a subscription's cursors under a name, or forgets them.
func (g *Gateway) snapshot(rq *request, c *call.Snapshot) {
	if err := model.ValidateName("name", c.Name); err != nil {
		g.reply(rq, nil, err)
		return
	}
	g.subscription(rq, c.Subscription, named{}, func(s *model.Subscription, _ *model.Topic) {
		g.kept(rq, s, &call.KeepCursors{Target: g.targetOf(s), Name: c.Name, Forget: c.Forget})
	})
}

func (g *Gateway) listSnapshots(rq *request, c *call.ListSnapshots) {
	g.subscription(rq, c.Subscription, named{}, func(s *model.Subscription, _ *model.Topic) {
		g.kept(rq, s, &call.ListCursors{Target: g.targetOf(s)})
	})
}

func (g *Gateway) kept(rq *request, s *model.Subscription, req call.Request) {
	g.ask(rq, s.Coordinator, req, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			g.reply(rq, nil, err)
			return
		}
		g.reply(rq, &call.SnapshotsResult{Snapshots: resp.(*call.KeptCursors).Snapshots}, nil)
	})
}

// restore seeks to a snapshot. The coordinator knows where that is, and the log
// has every offset that was a cursor, or says what of it is gone.
func (g *Gateway) restore(rq *request, c *call.Seek) {
	if err := model.ValidateName("snapshot", c.Snapshot); err != nil {
		g.reply(rq, nil, err)
		return
	}
	g.subscription(rq, c.Subscription, highestOf("partitions", c.Partitions), func(s *model.Subscription, _ *model.Topic) {
		g.ask(rq, s.Coordinator, &call.MoveCursors{Target: g.targetOf(s), Snapshot: c.Snapshot, Only: c.Partitions}, 0,
			func(resp call.Response, err *model.Error) {
				if err != nil {
					g.reply(rq, nil, err)
					return
				}
				moved := resp.(*call.Moved)
				g.reply(rq, &call.SeekResult{Generation: moved.Generation, Cursors: moved.To}, nil)
			})
	})
}
