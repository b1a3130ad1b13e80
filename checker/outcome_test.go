package checker

import (
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
)

func TestWhatMayBeConcludedFromAnError(t *testing.T) {
	for _, c := range []struct {
		err  *model.Error
		want Outcome
	}{
		{nil, OutcomeOK},
		{&model.Error{Code: model.InvalidArgument}, OutcomeRefused},
		{&model.Error{Code: model.ResourceExhausted, Reason: model.ReasonThrottled}, OutcomeRefused},
		{&model.Error{Code: model.Unavailable, Reason: model.ReasonNoLeader}, OutcomeRefused},
		{&model.Error{Code: model.Unavailable}, OutcomeUnknown}, // nobody says that nothing was proposed
		{&model.Error{Code: model.Unavailable, Reason: model.ReasonUnknownOutcome}, OutcomeUnknown},
		{&model.Error{Code: model.DeadlineExceeded}, OutcomeUnknown},
		{&model.Error{Code: model.Unknown}, OutcomeUnknown},
		{&model.Error{Code: model.Internal}, OutcomeUnknown},
	} {
		got, reason := OutcomeOf(c.err)
		if got != c.want || c.err != nil && reason != c.err.Reason {
			t.Errorf("%+v: %v, %q; want %v", c.err, got, reason, c.want)
		}
	}
}
