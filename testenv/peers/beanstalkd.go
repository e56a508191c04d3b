package peers

import (
	"context"
	"errors"
	"testing"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkd has a connection for each client; put, and for work reserve and delete. It has no pop
// without a reservation and no batches.
func beanstalkd() Peer {
	program, missing := find("beanstalkd", "/usr/bin")
	return Peer{
		Name: "beanstalkd", Missing: missing, Without: []string{Pop, PushMany, PopMany, WorkMany},
		Start: func(tb testing.TB, folder string) *Server {
			port := freePort(tb)
			s := start(tb, port, nil, program,
				"-l", "127.0.0.1", "-p", port, "-b", folder, "-f", "0")
			s.await(func() error {
				c, err := beanstalk.Dial("tcp", s.address)
				if err != nil {
					return err
				}
				return c.Close()
			})

			s.Connect = func(clients, _, priorities int) (all []*Client) {
				for range clients {
					c, err := beanstalk.Dial("tcp", s.address)
					must(tb, err)
					s.onStop(func() { _ = c.Close() }) // Nothing is under way any more.
					all = append(all, beanstalkClient(c, queueName(priorities)))
				}
				return all
			}

			return s
		},
	}
}

func beanstalkClient(c *beanstalk.Conn, tube string) *Client {
	put, reserve := beanstalk.NewTube(c, tube), beanstalk.NewTubeSet(c, tube)
	return &Client{
		Push: func(_ context.Context, items []Item) error {
			_, err := put.Put(items[0].Value, uint32(items[0].Priority), 0, leaseTime)
			return err
		},
		Work: func(context.Context, int) ([][]byte, error) {
			id, value, err := reserve.Reserve(0)
			if errors.Is(err, beanstalk.ErrTimeout) {
				return nil, ErrEmpty
			}
			if err != nil {
				return nil, err
			}
			return [][]byte{value}, c.Delete(id)
		},
	}
}
