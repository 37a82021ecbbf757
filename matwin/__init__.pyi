from matwin import scheduler as scheduler
from matwin import storage as storage
from matwin.storage.errors import BudgetError as BudgetError
from matwin.storage.errors import CorruptPage as CorruptPage
from matwin.storage.errors import InputError as InputError
from matwin.storage.errors import MatwinError as MatwinError
from matwin.storage.errors import OrderError as OrderError
from matwin.storage.errors import StoreError as StoreError

__version__: str
