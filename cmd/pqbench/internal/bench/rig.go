package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
	"github.com/pqbridge/pqbridge/subjects"
)

// rig is the NATS server, the echo service, the store's cluster, and the
// connections of the clients.
type rig struct {
	Options
	dir      string // temporary, for data and logs
	url      string // of the NATS server
	leaf     string // its address for leaf nodes; "" without JetStream
	nats     *process.Process
	echo     *process.Process
	cluster  cluster                 // nil if the store has none
	prefixes []string                // of the keys of all services
	conn     *nats.Conn              // for what is not measured
	conns    []*nats.Conn            // of the clients that send requests
	opened   []*nats.Conn            // all, to be closed
	broken   context.CancelCauseFunc // ends the measurement with a reason
}

// newRig starts everything but the services. The context it returns ends when one of the
// processes exits.
func newRig(ctx context.Context, o Options) (*rig, context.Context, error) {
	ctx, broken := context.WithCancelCause(ctx)
	r := &rig{Options: o, broken: broken}

	dir, err := os.MkdirTemp(o.Dir, "pq-bench-")
	if err == nil {
		r.dir, err = filepath.Abs(dir)
	}
	if err == nil && o.Store == StoreFDB {
		r.cluster, err = openCluster(&o, r.dir)
	}
	if err == nil {
		err = r.startNATS(ctx)
	}
	if err == nil {
		r.conn, err = r.connect(ctx)
	}
	if err == nil {
		err = r.startEcho(ctx)
	}
	if err == nil {
		r.conns, err = r.connectAll(ctx)
	}

	if err != nil {
		r.close()
		return nil, nil, err
	}
	return r, ctx, nil
}

// close stops what newRig started, in reverse order, and removes the data.
func (r *rig) close() {
	r.broken(errors.New("the benchmark has ended"))
	for _, nc := range r.opened {
		nc.Close()
	}

	for _, p := range []*process.Process{r.echo, r.nats} {
		if p != nil {
			p.Stop(syscall.SIGTERM)
		}
	}

	if r.cluster != nil {
		if err := r.cluster.close(r.prefixes); err != nil {
			_, _ = fmt.Fprintln(r.Log, "cannot clean up FoundationDB:", err)
		}
	}

	if r.dir == "" {
		return
	}
	if err := os.RemoveAll(r.dir); err != nil {
		_, _ = fmt.Fprintln(r.Log, "cannot remove the data of the benchmark:", err)
	}
}

// connect connects to the NATS server. The connection closes when ctx ends, which also ends
// requests that wait for a reply.
func (r *rig) connect(ctx context.Context) (*nats.Conn, error) {
	nc, err := nats.Connect(r.url)
	if err == nil {
		r.opened = append(r.opened, nc)
		context.AfterFunc(ctx, nc.Close)
	}
	return nc, err
}

// connectAll returns the connections that clients share.
func (r *rig) connectAll(ctx context.Context) ([]*nats.Conn, error) {
	all := make([]*nats.Conn, r.Connections)
	for i := range all {
		var err error
		if all[i], err = r.connect(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// watch ends the measurement if p exits first.
func (r *rig) watch(ctx context.Context, p *process.Process) {
	go func() {
		select {
		case <-p.Exited:
			r.broken(p.Failure())
		case <-ctx.Done():
		}
	}()
}

func (r *rig) startNATS(ctx context.Context) error {
	address, err := process.FreeAddress()
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}

	args := []string{r.NATSServer, "--addr", host, "--port", port}
	if r.JetStream {
		file, err := r.jetStreamConfiguration()
		if err != nil {
			return err
		}
		args = append(args, "--config", file)
	}
	if r.nats, err = process.Start(ctx, r.dir, "nats-server", args, nil); err != nil {
		return err
	}

	r.url = "nats://" + address
	if err = r.nats.AwaitListening(ctx, address); err == nil {
		r.watch(ctx, r.nats)
	}
	return err
}

func (r *rig) startEcho(ctx context.Context) (err error) {
	if r.echo, err = process.Start(ctx, r.dir, "echo", r.Echo, []string{"NATS_URL=" + r.url}); err != nil {
		return err
	}

	err = r.echo.Await(ctx, func() error {
		_, err := r.conn.Request(EchoSubject, nil, time.Second) // at once there is nobody
		return err
	})
	if err == nil {
		r.watch(ctx, r.echo)
	}
	return err
}

// queueName is the name of most queues, or begins it, and the key prefixes of services.
const queueName = "pq-bench"

// service is a pqbridge.
type service struct {
	*process.Process
	grammar subjects.Grammar
	prefix  string // of the subjects of priority queues
	env     []string
	url     string // of its HTTP server
}

// startService starts a pqbridge with a store of its own, and more in its environment. The tag keeps
// apart the subjects and keys of those that run at the same time.
func (r *rig) startService(ctx context.Context, tag string, env ...string) (*service, error) {
	priorities, fifo := subjects.DefaultPriorityPrefix+tag, subjects.DefaultFIFOPrefix+tag
	grammar, err := subjects.New(priorities, fifo)
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(r.dir, "data-")
	if err != nil {
		return nil, err
	}

	keys, fifoKeys := queueName+tag, "q-bench"+tag
	r.prefixes = append(r.prefixes, keys, fifoKeys)
	s := &service{grammar: grammar, prefix: priorities}
	s.env = []string{
		"PQ_NATS_URL=" + r.url,
		"PQ_DATA_DIR=" + data,
		"PQ_SUBJECT_PREFIX=" + priorities,
		"PQ_FIFO_PREFIX=" + fifo,
		"PQ_KEY_PREFIX=" + keys,
		"PQ_FIFO_KEY_PREFIX=" + fifoKeys,
	}

	s.env = append(s.env, env...)
	if r.Store != "" {
		s.env = append(s.env, "PQ_STORE="+r.Store)
	}
	if r.cluster != nil {
		s.env = append(s.env, "PQ_FDB_CLUSTER_FILE="+r.cluster.file())
	}
	if r.leaf != "" {
		s.env = append(s.env, "PQ_JETSTREAM_LEAF_URL=nats-leaf://"+r.leaf)
	}
	return s, r.launch(ctx, s)
}

// launch starts the process of s and waits until it is ready.
func (r *rig) launch(ctx context.Context, s *service) (err error) {
	for range 3 { // somebody else may take the address meanwhile
		err = r.launchOnce(ctx, s)
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
	return err
}

func (r *rig) launchOnce(ctx context.Context, s *service) error {
	address, err := process.FreeAddress()
	if err != nil {
		return err
	}
	s.url = "http://" + address
	p, err := process.Start(ctx, r.dir, "pqbridge", []string{r.Pqbridge}, append(slices.Clip(s.env), "PQ_HTTP_ADDR="+address))
	if err != nil {
		return err
	}
	s.Process = p

	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	return p.Await(ctx, func() error {
		response, err := client.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// restart kills the process, starts it again on the same data, and returns the time until
// it was ready.
func (r *rig) restart(ctx context.Context, s *service) (time.Duration, error) {
	s.Process.Stop(os.Kill)
	begin := time.Now()
	err := r.launch(ctx, s)
	return time.Since(begin), err
}

// end stops the process. If it has exited already, that is why the
// measurement failed, so end adds it to the error.
func (s *service) end(err *error) {
	select {
	case <-s.Exited:
		*err = errors.Join(*err, s.Failure())
	default:
		s.Process.Stop(syscall.SIGTERM)
	}
}

// subject returns the subject of a queue's requests with a verb.
func (s *service) subject(queue, verb string) string { return s.prefix + "." + queue + "." + verb }
