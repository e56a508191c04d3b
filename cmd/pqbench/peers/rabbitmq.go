package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// emptyAfter is how long a consumer waits for an item before it takes the queue for empty: longer
// than a busy server takes to send the first.
const emptyAfter = 2 * time.Second

// rabbitMQ returns RabbitMQ twice, since it has two types of queues with priorities: classic ones,
// and quorum queues, whose log is replicated by Raft.
func rabbitMQ() []bench.Peer {
	// The one in PATH may be a wrapper that changes the user and the folders.
	program, missing := find("rabbitmq-server", "/usr/lib/rabbitmq/bin")
	epmd, missingEpmd := find("epmd")
	if missing == "" {
		missing = missingEpmd
	}

	peer := func(name, notes string, declare declaration) bench.Peer {
		return bench.Peer{
			Name:    name,
			Missing: missing,
			Choice: library("github.com/rabbitmq/amqp091-go") + ", as many connections as the service's clients have, a channel for each client; persistent messages with publisher confirms, " +
				"for pop basic.get without acknowledgement, for work a consumer with a prefetch of 1 and basic.ack, for batches 100 messages before their confirms, and a prefetch of 100 with one basic.ack",
			Notes: notes,
			Start: func(ctx context.Context, dir string, _ bool) (bench.PeerServer, error) {
				return startRabbitMQ(ctx, program, epmd, dir, declare)
			},
		}
	}

	return []bench.Peer{
		peer("RabbitMQ classic", "Durable queue with x-max-priority. Up to version 3 only pushes are answered when synced, from version 4 on nothing is: confirms come when messages are written. "+
			"basic.ack has no answer.", classic),
		peer("RabbitMQ quorum", "Quorum queue with one replica. Pushes and pops are answered when synced; basic.ack has no answer.", quorum),
	}
}

// declaration is how a queue for that many priorities is declared in a version of RabbitMQ, how
// many levels of priority it then has, and the lowest of them, the least urgent.
type declaration func(version string, priorities int) (arguments amqp.Table, levels, lowest int)

func classic(_ string, priorities int) (arguments amqp.Table, levels, lowest int) {
	levels = min(priorities, 256)
	return amqp.Table{"x-max-priority": int32(max(levels-1, 1))}, levels, 0
}

// quorum queues take messages without a priority for those with 4. The library sends no priority
// for 0, so of the 32 that there are from version 4.3 on it has 31. Before, 4 and less were one
// level and the others another.
func quorum(version string, priorities int) (arguments amqp.Table, levels, lowest int) {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // a version that cannot be read is an old one
	levels, lowest = 1, 0
	switch {
	case major > 4 || major == 4 && minor >= 3:
		levels, lowest = 31, 1
	case major == 4:
		levels, lowest = 2, 4
	}
	return amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}, min(priorities, levels), lowest
}

// startRabbitMQ starts epmd and the server, and waits until clients can connect.
func startRabbitMQ(ctx context.Context, program, epmd, dir string, declare declaration) (bench.PeerServer, error) {
	mapper, err := startEpmd(ctx, epmd, dir)
	if err != nil {
		return nil, err
	}

	s, err := startNode(ctx, program, dir, mapper.address)
	if err != nil {
		mapper.Stop()
		return nil, err
	}

	r := &rabbitServer{server: s, epmd: mapper, declare: declare}
	err = s.Await(ctx, func() error {
		c, err := r.dial()
		if err != nil {
			return err
		}
		s.version, _ = c.Properties["version"].(string)
		return c.Close()
	})
	if err != nil {
		r.Stop()
	}
	return r, err
}

// rabbitServer needs epmd, by which Erlang's nodes find each other, as long as it runs.
type rabbitServer struct {
	*server
	epmd    *server
	declare declaration
}

func (s *rabbitServer) Stop() {
	s.server.Stop()
	s.epmd.Stop()
}

// startEpmd starts one that ends with the benchmark; Erlang would leave one behind.
func startEpmd(ctx context.Context, program, dir string) (*server, error) {
	s, err := startServer(ctx, dir, "epmd", syscall.SIGTERM, func(host, port string) []string {
		return []string{program, "-address", host, "-port", port}
	})
	if err != nil {
		return nil, err
	}
	if err := s.AwaitListening(ctx, s.address); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func startNode(ctx context.Context, program, dir, epmd string) (*server, error) {
	_, epmdPort, err := net.SplitHostPort(epmd)
	if err != nil {
		return nil, err
	}

	distribution, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	_, distributionPort, err := net.SplitHostPort(distribution)
	if err != nil {
		return nil, err
	}

	plugins := filepath.Join(dir, "enabled_plugins")
	if err := os.WriteFile(plugins, []byte("[].\n"), 0o644); err != nil {
		return nil, err
	}

	var env []string
	return startServer(ctx, dir, "rabbitmq", syscall.SIGTERM, func(host, port string) []string {
		env = []string{
			"HOME=" + dir, // of the cookie
			"ERL_EPMD_ADDRESS=" + host,
			"ERL_EPMD_PORT=" + epmdPort,
			"RABBITMQ_NODENAME=pqbench@localhost",
			"RABBITMQ_NODE_IP_ADDRESS=" + host,
			"RABBITMQ_NODE_PORT=" + port,
			"RABBITMQ_DIST_PORT=" + distributionPort,
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
			"RABBITMQ_CONF_ENV_FILE=" + filepath.Join(dir, "rabbitmq-env.conf"), // no such file, so none from /etc
			"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq"),
			"RABBITMQ_ENABLED_PLUGINS_FILE=" + plugins,
			"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "data"),
			"RABBITMQ_LOG_BASE=" + filepath.Join(dir, "log"),
			"RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
			"RUNNING_UNDER_SYSTEMD=true", // the script becomes the server, without a shell in between
		}
		return []string{program}
	}, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, env...) })
}

func (s *rabbitServer) dial() (*amqp.Connection, error) {
	return amqp.Dial("amqp://guest:guest@" + s.address)
}

// priority is the message's priority of an item. RabbitMQ has the most urgent last.
func (c *rabbitClient) priority(item bench.PeerItem) uint8 {
	return uint8(c.lowest + c.levels - 1 - item.Priority*c.levels/c.priorities)
}

func (s *rabbitServer) Connect(_ context.Context, clients, connections, priorities int) ([]*bench.PeerClient, error) {
	queue := "queue-" + strconv.Itoa(priorities)
	arguments, levels, lowest := s.declare(s.version, priorities)

	var all []*bench.PeerClient
	for i := range connections {
		nc, err := s.dial()
		if err != nil {
			return nil, err
		}
		s.onStop(func() { _ = nc.Close() }) // nothing is under way any more

		for range share(clients, connections, i) {
			ch, err := nc.Channel()
			if err == nil {
				_, err = ch.QueueDeclare(queue, true, false, false, false, arguments)
			}
			if err == nil {
				err = ch.Confirm(false)
			}
			if err != nil {
				return nil, err
			}

			c := &rabbitClient{connection: nc, channel: ch, queue: queue, priorities: priorities, levels: levels, lowest: lowest}
			all = append(all, &bench.PeerClient{
				Push: c.push, Pop: c.pop, Work: c.work, Rest: c.rest,
				Pushes: both, Pops: bench.One, Works: both,
			})
		}
	}
	return all, nil
}

// rabbitClient is one client. Its consumer has a channel of its own, and lives as long as a turn,
// since it is sent items before it asks for them.
type rabbitClient struct {
	connection                 *amqp.Connection
	channel                    *amqp.Channel
	queue                      string
	priorities, levels, lowest int

	consuming  *amqp.Channel // nil if there is no consumer
	deliveries <-chan amqp.Delivery
	timer      *time.Timer
}

func (c *rabbitClient) push(ctx context.Context, items []bench.PeerItem) error {
	confirms := make([]*amqp.DeferredConfirmation, 0, len(items))
	for _, item := range items {
		confirm, err := c.channel.PublishWithDeferredConfirmWithContext(ctx, "", c.queue, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Priority: c.priority(item), Body: item.Value,
		})
		if err != nil {
			return err
		}
		confirms = append(confirms, confirm)
	}

	for _, confirm := range confirms {
		ok, err := confirm.WaitContext(ctx)
		if err != nil {
			return err
		}
		if !ok {
			return errors.New("a message was refused")
		}
	}
	return nil
}

func (c *rabbitClient) pop(context.Context, int) ([][]byte, error) {
	m, ok, err := c.channel.Get(c.queue, true)
	if err == nil && !ok {
		err = bench.ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	return [][]byte{m.Body}, nil
}

// consume starts the client's consumer unless it has one.
func (c *rabbitClient) consume(prefetch int) (err error) {
	if c.consuming != nil {
		return nil
	}
	if c.consuming, err = c.connection.Channel(); err != nil {
		return err
	}
	if err = c.consuming.Qos(prefetch, 0, false); err == nil {
		c.deliveries, err = c.consuming.Consume(c.queue, "", false, false, false, false, nil)
	}
	c.timer = time.NewTimer(emptyAfter)
	return err
}

// receive returns the next item, or ErrEmpty if none comes.
func (c *rabbitClient) receive(ctx context.Context) (amqp.Delivery, error) {
	c.timer.Reset(emptyAfter)
	select {
	case d, ok := <-c.deliveries:
		if !ok {
			return d, errors.New("the consumer was cancelled")
		}
		return d, nil
	case <-c.timer.C:
		return amqp.Delivery{}, bench.ErrEmpty
	case <-ctx.Done():
		return amqp.Delivery{}, context.Cause(ctx)
	}
}

func (c *rabbitClient) work(ctx context.Context, n int) (values [][]byte, err error) {
	if err := c.consume(n); err != nil {
		return nil, err
	}

	var last amqp.Delivery
	for len(values) < n {
		d, err := c.receive(ctx)
		if errors.Is(err, bench.ErrEmpty) && len(values) > 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		last = d
		values = append(values, d.Body)
	}
	return values, last.Ack(n > 1)
}

// rest ends the consumer, so that the queue gets back what it was sent.
func (c *rabbitClient) rest() error {
	if c.consuming == nil {
		return nil
	}
	err := c.consuming.Close()
	c.consuming, c.deliveries = nil, nil
	return err
}
