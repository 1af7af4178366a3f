package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "example.org/rls/pkg/admin/adminpb"
)

var (
	errBusy  = status.Error(codes.ResourceExhausted, "too many calls of the admin API are under way: try again")
	errNoTop = status.Error(codes.Unimplemented, "this process counts no heavy hitters because of TOP_KEYS=0")
)

// call answers a request by send, which is called once unless the method streams. A
// panic is an error INTERNAL without details, and logged.
func (a *API) call(ctx context.Context, to *route, request proto.Message, send send) (err error) {
	calls := a.calls
	if to.streams() {
		calls = a.streams
	}
	select {
	case calls <- struct{}{}:
		defer func() { <-calls }()
	default:
		return errBusy
	}
	defer func() {
		if p := recover(); p != nil {
			a.options.Log.Error("panic", "in", to.method, "panic", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error: the log of the process has more")
		}
	}()
	if to.streams() {
		var cancel context.CancelFunc
		ctx, cancel = a.whileAllowed(ctx)
		defer cancel()
	}
	if err := to.setRows(request.ProtoReflect()); err != nil {
		return err
	}
	if r, can := request.(fleetwide); can && r.GetFleet() && to.merge != nil {
		return a.answerForFleet(ctx, to, r, send)
	}
	return to.answer(a, ctx, request, send)
}

// lookEvery is the time between two looks whether the token of a stream's caller counts.
const lookEvery = time.Second

// whileAllowed returns a context that ends when the process does, or when the caller's
// token no longer counts. The caller must cancel it.
func (a *API) whileAllowed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.options.Ending, cancel)
	go func() {
		defer stop()
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for callerOf(ctx).stillAllowed() {
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, cancel
}

func (a *API) status(_ context.Context, r *pb.StatusRequest) (any, error) {
	return json.RawMessage(a.options.Status.JSON(r.GetHistory())), nil
}

func (a *API) rules(_ context.Context, r *pb.RulesRequest) (any, error) {
	if r.GetOffset() < 0 {
		return nil, invalid("offset is %d: want at least 0", r.GetOffset())
	}
	return json.RawMessage(a.options.Status.RulesJSON(r.GetQ(), int(r.GetN()), int(r.GetOffset()))), nil
}

// watch sends the updates of the status.
func (a *API) watch(ctx context.Context, _ *pb.WatchRequest, send send) error {
	for update := range a.options.Status.Watch(ctx) {
		if err := send(json.RawMessage(update)); err != nil {
			return err
		}
	}
	return nil
}

// maxTop is the most rows of an answer of /v1/top.
const maxTop = 1000

func (a *API) top(_ context.Context, r *pb.TopRequest) (any, error) {
	if a.options.Top == nil {
		return nil, errNoTop
	}
	by := cmp.Or(r.GetBy(), "denied")
	if !slices.Contains([]string{"denied", "hits", "cost"}, by) {
		return nil, invalid("by is %q: want denied, hits or cost", by)
	}
	return a.options.Top.Top(by, r.GetRule(), int(r.GetN())), nil
}

func (a *API) auditLog(_ context.Context, r *pb.AuditRequest) (any, error) {
	return a.audit.last(int(r.GetN())), nil
}
