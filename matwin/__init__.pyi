from matwin import scheduler as scheduler
from matwin import storage as storage
from matwin.bestmatch import bestmatch_join as bestmatch_join
from matwin.explain import explain_join as explain_join
from matwin.fixed import fixed_window_join as fixed_window_join
from matwin.operators.epsilon import epsilon_join as epsilon_join
from matwin.orders import min_distance as min_distance
from matwin.orders import minimize as minimize
from matwin.orders import partial_order as partial_order
from matwin.orders import subset as subset
from matwin.orders import youngest as youngest
from matwin.report import Report as Report
from matwin.storage.errors import BudgetError as BudgetError
from matwin.storage.errors import CorruptPage as CorruptPage
from matwin.storage.errors import InputError as InputError
from matwin.storage.errors import MatwinError as MatwinError
from matwin.storage.errors import OrderError as OrderError
from matwin.storage.errors import StoreError as StoreError
from matwin.streams import GridOrdered as GridOrdered
from matwin.streams import Lateness as Lateness
from matwin.streams import Punctuated as Punctuated
from matwin.streams import Punctuation as Punctuation
from matwin.streams import ReadAhead as ReadAhead
from matwin.streams import Sorted as Sorted
from matwin.streams import stream as stream
from matwin.tools.verify import verify as verify

__version__: str
