package checker

import "github.com/tapedeck/tapedeck/core/model"

// OutcomeOf says what a client may conclude from how a call ended (nil: well), and
// why: a refusal that cannot have had an effect, or an unknown outcome. It is a
// promise of the broker's errors, so every history is judged by this one.
func OutcomeOf(err *model.Error) (Outcome, model.Reason) {
	if err == nil {
		return OutcomeOK, ""
	}
	if err.Reason == model.ReasonUnknownOutcome {
		return OutcomeUnknown, err.Reason
	}
	switch err.Code {
	case model.InvalidArgument, model.NotFound, model.AlreadyExists, model.FailedPrecondition, model.OutOfRange,
		model.ResourceExhausted, model.PermissionDenied, model.Unimplemented:
		return OutcomeRefused, err.Reason
	case model.Unavailable:
		if err.Reason != "" { // the broker says by it that nothing was proposed
			return OutcomeRefused, err.Reason
		}
	}
	return OutcomeUnknown, err.Reason
}
