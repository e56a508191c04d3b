package peers

import (
	"context"
	"errors"
	"os/exec"

	"github.com/beanstalkd/go-beanstalk"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// beanstalkd has a connection for each client; put, and for work reserve and delete. It has no pop
// without a reservation and no batches.
func beanstalkd() Peer {
	program, missing := find("beanstalkd")
	return Peer{
		Name: "beanstalkd", Missing: missing, Does: []string{Push, Work},
		command: func(_ *Server, folder, port string) *exec.Cmd {
			return harness.Command(program, "-l", "127.0.0.1", "-p", port, "-b", folder, "-f", "0")
		},
		dial: func(s *Server, queue string, _ int) (func() (*Client, error), error) {
			newClient := func() (*Client, error) { return beanstalkClient(s, queue) }
			_, err := newClient()
			return newClient, err
		},
	}
}

func beanstalkClient(s *Server, tube string) (*Client, error) {
	c, err := beanstalk.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}

	s.onStop(func() { _ = c.Close() })
	put, reserve := beanstalk.NewTube(c, tube), beanstalk.NewTubeSet(c, tube)
	return &Client{
		Push: func(_ context.Context, items []Item) error {
			_, err := put.Put(items[0].Value, uint32(items[0].Priority), 0, leaseTime)
			return err
		},
		Work: func(context.Context, int) ([][]byte, error) {
			id, value, err := reserve.Reserve(0)
			if errors.Is(err, beanstalk.ErrTimeout) {
				err = ErrEmpty
			} else if err == nil {
				err = c.Delete(id)
			}
			return [][]byte{value}, err
		},
	}, nil
}
