"""The account's server, in which events of AWS's own services can be put.

PutEvents takes no source that begins with `aws.`, neither on AWS nor here: there, only the services themselves
emit such events. Here they emit none of those that the rules wait for, so the scenarios put them in their stead. What
lies behind the bus is untouched: rules, queue policy, queue, mapping, function.
"""

from functools import partial

from ministack.app import main
from ministack.services import eventbridge

eventbridge._put_events = partial(eventbridge._put_events, allow_aws_source=True)

if __name__ == "__main__":
    main()
